"""How n-grams and their values lie in memory: packed numbers, the trie, the back-off table."""
