# What may have caused an incident, a file for each family. Asks the facts.
