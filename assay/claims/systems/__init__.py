"""Systems on a virtual clock: what a schedule, a simulation or a placement costs, without a second of waiting."""
