# Models of expected time as files: kept, fitted over inputs, checked against records, compared.
