"""What a person may set: frozen values, read from TOML, with errors that say what to change."""
