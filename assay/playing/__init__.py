"""How a task is played: episodes, completions, dialogues."""
