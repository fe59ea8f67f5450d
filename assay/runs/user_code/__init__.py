"""The user's own code: rewards, methods, environments and tools, by file or import path."""
