"""The record, spaces, slots, recipes and settings: what everything else is written in terms of."""
