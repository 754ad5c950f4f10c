"""What the leaderboard keeps: tables, their migrations, and the one object that opens them."""
