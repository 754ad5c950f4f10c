"""The leaderboard runner: store, queue, runners, the popcorn HTTP server and its pages."""
