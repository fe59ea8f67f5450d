"""Agent programs that reach the policy by an OpenAI-style address, and the recording of what they asked."""
