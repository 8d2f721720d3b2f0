"""What a result says, in the words of one language, before any form lays it out."""
