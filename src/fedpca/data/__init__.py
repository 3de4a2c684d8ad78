"""Images and labels of a federation: where they come from, how they are spread, and what is done to them."""
