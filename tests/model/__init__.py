"""The file protocol of the library as an explicit-state model, explored exhaustively in small scenarios."""
