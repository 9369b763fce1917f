"""Count-Min sketches of what each kind of tuple costs, and the hashing they share."""
