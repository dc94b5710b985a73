"""The report jobs: an uploaded transcript becomes a report in five stages, each with one outside system.

    read       the transcript, from S3
    ask        the model; what it wrote must be JSON
    validate   that against the schema of its version
    write      the report, to S3, once
    save       the row for people, in one transaction with the end of the job

Tries, waits, what is retriable and what is fatal, and the error codes are those of the preset `reports`; its codes go by the names of
the stages. `perdure worker examples.reports.app:app` works on the jobs.
"""

from functools import cache
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

import msgspec
from examples.reports.report import SCHEMAS, request_of
from examples.reports.settings import LLM_KEY, LLM_MODEL, LLM_URL, SCALE, SETTINGS, TIMEOUT_S

from examples.reports import files, objects
from perdure import App, Backoff, Context, Policy, StageError, Succeeded
from perdure.checks import json_of, read_json

EXTENSIONS = (".txt", ".md", ".vtt")
DOCUMENT = Policy.based_on("reports", name="reports")  # 4 attempts; 30, 120 and 480 s, each ± 20 %


def policy_at(scale: float) -> Policy | str:
    """The preset itself; or with its waits scaled, under another name, for demonstrations and tests."""
    if scale == 1:
        return "reports"
    steps_s = tuple(one * scale for one in DOCUMENT.backoff.steps_s)
    backoff = Backoff("schedule", base_s=steps_s[0], cap_s=None, steps_s=steps_s)
    return Policy.based_on("reports", name=f"reports-x{scale:g}", backoff=backoff)


app = App(settings=SETTINGS)
app.upstream("llm", concurrency=4)
ENDS = {"policy": policy_at(SETTINGS[SCALE]), "timeout_s": SETTINGS[TIMEOUT_S]}  # of every stage


class Upload(msgspec.Struct):
    """The item of a job: a file as it was uploaded."""

    file_id: str
    name: str
    key: str
    sha256: str
    version: str


class Answer(msgspec.Struct):
    text: str
    finish_reason: str | None


class Checked(msgspec.Struct):
    report: dict
    repaired: bool


class Written(msgspec.Struct):
    key: str
    sha256: str
    repaired: bool


def upload_of(context: Context) -> Upload:
    """The job's item, for the stages after the first."""
    return msgspec.convert(context.item, Upload)


def begin(context: Context) -> Upload:
    """The job's item, and its file shown as in work. A file is of one job; any other ends here, before it writes."""
    upload = upload_of(context)
    if not files.mark_processing(upload.file_id, context.job_id, context.token):
        raise StageError("not_found", f"file {upload.file_id} is not of this job")
    return upload


@app.stage(**ENDS)
def read(upload: Upload, context: Context) -> str:
    begin(context)
    if PurePosixPath(upload.name).suffix.lower() not in EXTENSIONS:
        raise refusal(f"{upload.name!r} is no transcript", "The type of the file is not supported.")
    if upload.version not in SCHEMAS:
        raise refusal(f"there is no version {upload.version!r}", "The file's metadata are damaged.")
    body = objects.get(upload.key)  # one that is missing ends the job: file_context_not_found
    if sha256(body).hexdigest() != upload.sha256:
        raise refusal(f"{upload.key} is not what was uploaded", "The file's metadata are damaged.")
    try:
        text = body.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise refusal(f"{upload.key} is not UTF-8", "The file is not a text.")
    if not text:
        code = "empty_original_transcript"
        raise refusal(f"{upload.key} is empty", "The transcript is empty.", public_code=code)
    return text


def refusal(detail: str, public_message: str, **more: str) -> StageError:
    return StageError("input_invalid", detail, public_message=public_message, **more)


@cache
def client() -> Any:
    """The model's client, made when it is first used. It tries nothing again by itself: the policy does."""
    from openai import OpenAI  # takes most of a second, so only who asks the model waits for it

    return OpenAI(base_url=SETTINGS[LLM_URL], api_key=SETTINGS[LLM_KEY], max_retries=0)


@app.stage(**ENDS, upstream="llm")
def ask(transcript: str, context: Context) -> Answer:
    upload = begin(context)
    raw = client().chat.completions.with_raw_response.create(
        model=SETTINGS[LLM_MODEL],
        timeout=context.time_left_s(),
        extra_headers={"X-Request-Id": context.request_id},
        **request_of(upload.version, transcript),
    )
    context.limits(raw.headers)
    answer = raw.parse()
    if used := answer.usage:
        context.usage(tokens_in=used.prompt_tokens, tokens_out=used.completion_tokens)
    said = answer.choices[0]
    text = said.message.content or ""
    json_of(text, finish_reason=said.finish_reason)  # no JSON: llm_output_invalid_json, and fatal
    return Answer(text, said.finish_reason)


@app.stage(**ENDS)
def validate(answer: Answer, context: Context) -> Checked:
    schema = SCHEMAS[upload_of(context).version]
    parsed = read_json(answer.text, schema, finish_reason=answer.finish_reason)
    return Checked(parsed.value, parsed.repaired)


@app.stage(**ENDS)
def write(checked: Checked, context: Context) -> Written:
    upload = begin(context)
    key = f"{objects.REPORTS}{upload.file_id}/{upload.name}.json"
    told = {"file": upload.name, "version": upload.version, "report": checked.report}
    kept = objects.put_once(key, msgspec.json.encode(told))
    return Written(key, sha256(kept).hexdigest(), checked.repaired)


@app.stage(**ENDS)
def save(written: Written, context: Context) -> None:
    id = upload_of(context).file_id
    with files.database() as connection:
        job = (context.job_id, context.token)
        if not files.save_report(connection, id, *job, written.key, written.sha256):
            raise StageError("not_found", f"file {id} is not of this job")
        end = Succeeded({"report": written.key}, label="repaired" if written.repaired else None)
        context.complete(end, within=connection)


STAGES = (read, ask, validate, write, save)
reports = app.pipeline("reports", *STAGES, source_exists=lambda item: objects.exists(item["key"]))
