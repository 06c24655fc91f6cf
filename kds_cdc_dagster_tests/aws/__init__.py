"""The aws profile as a whole, over emulators."""
