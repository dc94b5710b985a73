"""A converter from PDF to XML behind a gateway that fails: an application that runs on Perdure."""
