# Tables -> bounded rolling facts of each engine. Knows no cause.
