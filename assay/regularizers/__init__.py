"""Extra losses."""
