"""A reward of what an agent program left."""


def digits(rows):
    """Pays for a result in the lower half of bytes."""
    return [float(bool(row["result"]) and ord(row["result"][0]) < 64) for row in rows]
