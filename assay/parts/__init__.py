"""Parts that two or more methods use, one folder for each slot."""
