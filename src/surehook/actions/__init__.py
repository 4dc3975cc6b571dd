"""What happens because somebody asked: an answer, no loop. One file, one role."""
