"""/metrics of the HTTP API: who may read it, and that it has what this process does."""

from tests.engine.kit import until
from tests.observers.scraping import Scraped
from tests.surfaces.http.conftest import on_both_stores, problem


@on_both_stores
def test_a_scrape_has_the_store_and_what_the_worker_of_this_process_does(app, client):
    viewer = client("read_all", owner="")

    def scraped() -> Scraped:
        answer = viewer.get("/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        return Scraped(answer.text)

    before = scraped()
    assert before("perdure_jobs_created_total", pipeline="shouting") == 0
    pipe = app.get_pipeline("shouting")
    with app.working(concurrency=1):
        pipe.enqueue({"text": "a"}).wait()
        pipe.enqueue({"broken": True}).wait()
        until(
            lambda: scraped().total("perdure_attempt_seconds_count") == 2, "both ends are counted"
        )
    seen = scraped()
    assert seen.fallen_since(before) == []
    assert seen("perdure_jobs_created_total", pipeline="shouting") == 2
    assert seen.total("perdure_jobs_ended_total", state="failed") == 1
    assert seen("perdure_time_to_success_seconds_count", pipeline="shouting") == 1
    assert seen("perdure_turn_seconds_count") > 1


def test_owners_may_not_read_the_metrics_of_all_and_nobody_without_a_token(client):
    assert problem(client().get("/metrics")) == "unauthenticated"
    assert problem(client("read", "submit", "operate").get("/metrics")) == "forbidden"
    assert client("admin", owner="").get("/metrics").status_code == 200
