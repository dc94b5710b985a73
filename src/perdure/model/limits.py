"""A limit on everything, each with its unit in the name and its reason beside it."""

PAYLOAD_BYTES_MAX = 1_048_576  # items are references to large things, not the things
RESULT_BYTES_MAX = 1_048_576  # as above; larger results belong in object storage
DEPTH_MAX = 64  # nesting of a payload; parsers on either side recurse
INTEGER_BITS_MAX = 64  # JSON readers disagree about larger integers
KEY_CHARS_MAX = 200  # idempotency keys are indexed
NAME_CHARS_MAX = 100  # owner, queue, category, pipeline, stage and label names are indexed
PIPELINE_STAGES_MAX = 50  # a pipeline is a list a person can read
ENQUEUE_BYTES_MAX = 33_554_432  # payloads in one transaction; more is split, too
ENQUEUE_BATCH_MAX = 10_000  # jobs in one transaction; callers may pass more, it is split
CLAIM_BATCH_MAX = 1_000  # beyond 500 nothing is gained, and a crash strands more
PROMOTE_BATCH_MAX = 1_000  # due retries made ready in one turn, so that a herd cannot hold the lock
LOST_BATCH_MAX = 500  # a dead worker's jobs settled in one turn
PAGE_ROWS_MAX = 500  # rows of a listing
MESSAGE_CHARS_MAX = 2_000  # internal detail of an error, one line
NAMES_MAX = 12  # class names kept of an exception's ancestry
CAUSES_MAX = 4  # links kept of an exception's cause chain
HEADER_CHARS_MAX = 256  # a response header kept as evidence
HEADERS_MAX = 24  # response headers kept as evidence
CODES_MAX = 8  # machine codes kept as evidence
CODE_CHARS_MAX = 100  # one of them
FACTS_MAX = 12  # body fields kept as evidence
BODY_BYTES_READ_MAX = 65_536  # of an error body, looked through for codes and hints
HINT_S_MAX = 86_400.0  # a server asking for more than a day has a quota, not a rate
DELAY_S_MAX = 366 * 86_400.0  # no computed delay is longer than a year
SUSPECTS_TOGETHER_MAX = 16  # jobs sharing a child after one crash
AGEING_S = 60.0  # one step of priority is worth this much waiting, so low priority never starves
