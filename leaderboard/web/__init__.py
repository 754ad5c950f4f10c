"""The leaderboard's pages: read from the store, rendered here with the report's own markup, plots and style."""
