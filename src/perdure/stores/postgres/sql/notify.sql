NOTIFY perdure
