# When incidents open, change, close and come back.
