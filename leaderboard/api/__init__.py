"""The HTTP side: popcorn's calls, the runners' calls, the administrators' calls."""
