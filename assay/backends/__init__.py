"""The only place for optional packages."""
