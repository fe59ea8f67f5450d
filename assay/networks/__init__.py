"""Network bodies that actors and critics share."""
