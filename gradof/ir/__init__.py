"""The IR: types, graphs with kept use lists, builder, printer, parser, verifier, clone."""
