"""Plays tasks: episodes, completions, dialogues."""
