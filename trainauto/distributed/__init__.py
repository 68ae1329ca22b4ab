"""The processes that train one run together: how they meet, and what they tell each other."""
