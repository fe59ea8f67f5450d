"""Tasks and data of other libraries."""
