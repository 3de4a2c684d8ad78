"""What the figures share: their registry and files, style, lines over rounds or settings, labels."""
