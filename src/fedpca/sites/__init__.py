"""What any engine with real sites needs: their settings, data and memory, what is said, and the run over them."""
