"""What happens on the way to a server, by the classes of every HTTP client.

``network``: never sent. ``timeout``: sent, and no answer in time. ``ambiguous``: sent, and cut off;
whether it took effect is unknown. An empty pool of our own is ``resource_exhausted`` and no fault of the
server's.
"""

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Family, Found, each, short_names

_HTTPX_ROOTS = ("httpx", "httpx2", "httpcore", "httpcore2")


def unreadable_answer(evidence: Evidence) -> Found | None:
    """aiohttp gives an answer that it cannot read the status 400; no server said so."""
    for names in (evidence.names, *evidence.causes):
        if "aiohttp.HttpProcessingError" in short_names(names):
            return Kind.AMBIGUOUS, f"{short_names(names)[0]}, not HTTP"
    return None


_HTTPX = {
    "ConnectTimeout": Kind.NETWORK,
    "ProxyError": Kind.NETWORK,
    "PoolTimeout": Kind.RESOURCE_EXHAUSTED,
    "ReadTimeout": Kind.TIMEOUT,
    "WriteTimeout": Kind.TIMEOUT,
    "TimeoutException": Kind.TIMEOUT,
    "ReadError": Kind.AMBIGUOUS,
    "WriteError": Kind.AMBIGUOUS,
    "CloseError": Kind.AMBIGUOUS,
    "NetworkError": Kind.AMBIGUOUS,
    "RemoteProtocolError": Kind.AMBIGUOUS,
    "TransportError": Kind.AMBIGUOUS,
    "DecodingError": Kind.UPSTREAM_ERROR,
    "LocalProtocolError": Kind.INVALID_REQUEST,
    "UnsupportedProtocol": Kind.INVALID_REQUEST,
    "InvalidURL": Kind.INVALID_REQUEST,
    "TooManyRedirects": Kind.INVALID_REQUEST,
    "StreamError": Kind.INTERNAL,
}
_REQUESTS = {
    "ConnectTimeout": Kind.NETWORK,
    "ProxyError": Kind.NETWORK,
    "ReadTimeout": Kind.TIMEOUT,
    "Timeout": Kind.TIMEOUT,
    "ChunkedEncodingError": Kind.AMBIGUOUS,
    "ContentDecodingError": Kind.UPSTREAM_ERROR,
    "RetryError": Kind.UPSTREAM_ERROR,
    "JSONDecodeError": Kind.INVALID_OUTPUT,
    "InvalidURL": Kind.INVALID_REQUEST,
    "MissingSchema": Kind.INVALID_REQUEST,
    "InvalidSchema": Kind.INVALID_REQUEST,
    "InvalidHeader": Kind.INVALID_REQUEST,
    "URLRequired": Kind.INVALID_REQUEST,
    "TooManyRedirects": Kind.INVALID_REQUEST,
}
_URLLIB3 = {
    "NewConnectionError": Kind.NETWORK,
    "NameResolutionError": Kind.NETWORK,
    "ConnectTimeoutError": Kind.NETWORK,
    "ProxyError": Kind.NETWORK,
    "ReadTimeoutError": Kind.TIMEOUT,
    "TimeoutError": Kind.TIMEOUT,
    "IncompleteRead": Kind.AMBIGUOUS,
    "InvalidChunkLength": Kind.AMBIGUOUS,
    "EmptyPoolError": Kind.RESOURCE_EXHAUSTED,
    "FullPoolError": Kind.RESOURCE_EXHAUSTED,
    "ClosedPoolError": Kind.INTERNAL,
    "DecodeError": Kind.UPSTREAM_ERROR,
    "LocationValueError": Kind.INVALID_REQUEST,
}
_AIOHTTP = {
    "ClientConnectorCertificateError": Kind.CONFIG_MISSING,
    "ServerFingerprintMismatch": Kind.CONFIG_MISSING,
    "ClientConnectorDNSError": Kind.NETWORK,
    "ClientProxyConnectionError": Kind.NETWORK,
    "ConnectionTimeoutError": Kind.NETWORK,
    "SocketTimeoutError": Kind.TIMEOUT,
    "ServerTimeoutError": Kind.TIMEOUT,
    "ServerDisconnectedError": Kind.AMBIGUOUS,
    "ClientConnectionResetError": Kind.AMBIGUOUS,
    "ClientPayloadError": Kind.AMBIGUOUS,
    "ClientConnectionError": Kind.AMBIGUOUS,
    "ContentTypeError": Kind.INVALID_OUTPUT,
    "InvalidURL": Kind.INVALID_REQUEST,
    "NonHttpUrlClientError": Kind.INVALID_REQUEST,
    "TooManyRedirects": Kind.INVALID_REQUEST,
}
_BOTOCORE = {
    "EndpointConnectionError": Kind.NETWORK,
    "ConnectTimeoutError": Kind.NETWORK,
    "ProxyConnectionError": Kind.NETWORK,
    "ReadTimeoutError": Kind.TIMEOUT,
    "ConnectionClosedError": Kind.AMBIGUOUS,
    "ResponseStreamingError": Kind.AMBIGUOUS,
    "IncompleteReadError": Kind.AMBIGUOUS,
    "ChecksumError": Kind.AMBIGUOUS,
    "FlexibleChecksumError": Kind.AMBIGUOUS,
    "CapacityNotAvailableError": Kind.RESOURCE_EXHAUSTED,
    "NoCredentialsError": Kind.CONFIG_MISSING,
    "PartialCredentialsError": Kind.CONFIG_MISSING,
    "NoRegionError": Kind.CONFIG_MISSING,
    "ProfileNotFound": Kind.CONFIG_MISSING,
    "ConfigNotFound": Kind.CONFIG_MISSING,
    "CredentialRetrievalError": Kind.AUTH,
    "TokenRetrievalError": Kind.AUTH,
    "SSOError": Kind.AUTH,
    "ParamValidationError": Kind.INVALID_REQUEST,
    "ValidationError": Kind.INVALID_REQUEST,
}
_OTHERS = {
    "http.IncompleteRead": Kind.AMBIGUOUS,
    "http.RemoteDisconnected": Kind.AMBIGUOUS,
    "http.BadStatusLine": Kind.AMBIGUOUS,
    "http.HTTPException": Kind.AMBIGUOUS,
    "http.InvalidURL": Kind.INVALID_REQUEST,
    "http.ImproperConnectionState": Kind.INTERNAL,
    "urllib.ContentTooShortError": Kind.AMBIGUOUS,
    "socket.gaierror": Kind.NETWORK,
    "socket.herror": Kind.NETWORK,
    "ssl.SSLCertVerificationError": Kind.CONFIG_MISSING,
    "ssl.SSLEOFError": Kind.AMBIGUOUS,
    "ssl.SSLZeroReturnError": Kind.AMBIGUOUS,
    "ssl.SSLError": Kind.NETWORK,
    "h11.RemoteProtocolError": Kind.AMBIGUOUS,
    "anyio.BrokenResourceError": Kind.AMBIGUOUS,
    "anyio.EndOfStream": Kind.AMBIGUOUS,
    "websockets.ConnectionClosed": Kind.AMBIGUOUS,
    "websockets.InvalidHandshake": Kind.NETWORK,
}

FAMILY = Family(
    name="transport",
    class_traps={"aiohttp.ClientError": unreadable_answer},
    late_classes={
        **each(_HTTPX_ROOTS, _HTTPX),
        **each(("requests",), _REQUESTS),
        **each(("urllib3",), _URLLIB3),
        **each(("aiohttp",), _AIOHTTP),
        **each(("botocore",), _BOTOCORE),
        **_OTHERS,
    },
    wrappers={
        **{f"{root}.ConnectError": Kind.NETWORK for root in _HTTPX_ROOTS},
        "requests.ConnectionError": Kind.NETWORK,
        "requests.SSLError": Kind.NETWORK,
        "urllib3.MaxRetryError": Kind.NETWORK,
        "urllib3.SSLError": Kind.NETWORK,
        "urllib3.ProtocolError": Kind.AMBIGUOUS,
        "aiohttp.ClientConnectorError": Kind.NETWORK,
        "aiohttp.ClientOSError": Kind.AMBIGUOUS,
        "botocore.SSLError": Kind.CONFIG_MISSING,
        "botocore.ConnectionError": Kind.NETWORK,
        "botocore.HTTPClientError": Kind.AMBIGUOUS,
        "urllib.URLError": Kind.NETWORK,
    },
    parents={
        f"{root}.{name}": f"{root}.{parent}"
        for root in ("httpx", "httpx2")
        for name, parent in {
            "ConnectTimeout": "TimeoutException",
            "ReadTimeout": "TimeoutException",
            "WriteTimeout": "TimeoutException",
            "PoolTimeout": "TimeoutException",
            "ConnectError": "NetworkError",
            "ReadError": "NetworkError",
            "WriteError": "NetworkError",
            "CloseError": "NetworkError",
            "RemoteProtocolError": "ProtocolError",
            "LocalProtocolError": "ProtocolError",
            "ProtocolError": "TransportError",
            "NetworkError": "TransportError",
            "TimeoutException": "TransportError",
            "ProxyError": "TransportError",
            "UnsupportedProtocol": "TransportError",
            "TransportError": "RequestError",
            "DecodingError": "RequestError",
            "TooManyRedirects": "RequestError",
            "RequestError": "HTTPError",
            "HTTPStatusError": "HTTPError",
        }.items()
    }
    | {
        "requests.ConnectTimeout": "requests.ConnectionError",
        "requests.ConnectionError": "requests.RequestException",
        "requests.ReadTimeout": "requests.Timeout",
        "requests.Timeout": "requests.RequestException",
        "requests.RequestException": "builtins.OSError",
        "aiohttp.ServerDisconnectedError": "aiohttp.ServerConnectionError",
        "aiohttp.ServerConnectionError": "aiohttp.ClientConnectionError",
        "aiohttp.ClientConnectorError": "aiohttp.ClientOSError",
        "aiohttp.ClientOSError": "aiohttp.ClientConnectionError",
        "aiohttp.ClientConnectionError": "aiohttp.ClientError",
        "botocore.EndpointConnectionError": "botocore.ConnectionError",
        "botocore.ConnectTimeoutError": "botocore.ConnectionError",
        "botocore.ReadTimeoutError": "botocore.HTTPClientError",
        "botocore.ConnectionClosedError": "botocore.HTTPClientError",
        "urllib3.MaxRetryError": "urllib3.RequestError",
    },
)
