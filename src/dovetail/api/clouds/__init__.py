"""Built-in instance types and prices of AWS, Azure and Google Cloud, one module per cloud."""
