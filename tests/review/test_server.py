"""The server over HTTP: its answers, and the requests that it refuses."""

import http.client
import io
import json
import os
import signal
import socket
import threading
import zlib
from email.message import Message
from urllib.parse import urlsplit

import pytest
from PIL import Image

from farther.command import main
from farther.curation import DecisionsFile
from farther.errors import DataError, ParameterError
from farther.review import ReviewServer, ReviewSettings, serve
from farther.review.serve import make_server
from farther.tables import Images

SIX = 6


class Client:
    """Asks a server at an address, over one connection."""

    def __init__(self, address: str):
        parts = urlsplit(address)
        self.host, self.token = parts.netloc, parts.path.strip("/")
        self.connection = http.client.HTTPConnection(self.host, timeout=600)

    def ask(self, path: str, body: object = None, **headers: str) -> tuple[int, Message, bytes]:
        """Status, headers and content; with a body it posts JSON."""
        sent = None if body is None else json.dumps(body)
        kind = {} if body is None else {"Content-Type": "application/json"}
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request("GET" if body is None else "POST", path, sent, {**kind, **given})
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def api(self, path: str, body: object = None):
        status, _, content = self.ask(f"/{self.token}/api/{path}", body)
        return status, json.loads(content)


@pytest.fixture
def client(answering: ReviewServer):
    client = Client(answering.address)
    yield client
    client.connection.close()


def keep(row: int) -> dict[str, object]:
    return {"row": row, "decision": "keep", "id_class": "", "note": ""}


def test_the_page_needs_nothing_from_elsewhere(client):
    for name, kind in [("", "text/html"), ("page.css", "text/css"), ("page.js", "text/javascript")]:
        status, headers, content = client.ask(f"/{client.token}/{name}")
        assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert b"http" not in content.replace(b"http://www.w3.org/2000/svg", b"")
        assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_a_picture_is_sent_as_it_is_on_disk(client, project):
    status, headers, content = client.ask(f"/{client.token}/picture/4")
    assert (status, headers["Content-Type"]) == (200, "image/png")
    assert content == (project / "photos" / "e.png").read_bytes()


def test_a_picture_that_browsers_do_not_show_is_converted(client, project):
    Image.new("RGB", (64, 48)).save(project / "photos" / "a.png", "TIFF")
    _, headers, content = client.ask(f"/{client.token}/picture/0")
    assert (headers["Content-Type"], content[:4]) == ("image/png", b"\x89PNG")


def test_a_webp_picture_that_browsers_do_not_turn_is_sent_upright(client, project):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (48, 64)).save(project / "photos" / "a.png", "WEBP", exif=exif)
    _, headers, content = client.ask(f"/{client.token}/picture/0")
    assert headers["Content-Type"] == "image/png"
    assert Image.open(io.BytesIO(content)).size == (64, 48)


def test_a_file_that_is_no_picture_is_not_sent(client, project):
    (project / "photos" / "a.png").write_text("<svg onload='alert(1)'/>")
    status, _, content = client.ask(f"/{client.token}/picture/0")
    assert status == 500
    assert b"cannot be read" in content
    (project / "photos" / "a.png").unlink()
    assert client.ask(f"/{client.token}/picture/0")[0] == 404


def test_a_name_in_the_tables_cannot_lead_out_of_the_dataset(client, catalogue, project):
    (project / "secret.png").write_bytes((project / "photos" / "a.png").read_bytes())
    catalogue.images = catalogue.images.with_columns(
        file=["../secret.png", *catalogue.images.file[1:]]
    )
    status, _, content = client.ask(f"/{client.token}/picture/0")
    assert status == 500
    assert b"leaves its folder" in content


@pytest.mark.parametrize(
    "path", ["../../rules.yaml", "..%2f..%2frules.yaml", "page.html", "picture/../0", "picture/-1"]
)
def test_no_other_path_is_answered(client, path):
    assert client.ask(f"/{client.token}/{path}")[0] == 404


def test_without_the_token_nothing_is_told(client):
    for path in ("/", "/x/", f"/{client.token}", f"/{client.token[:-1]}/", "/api/summary"):
        status, _, content = client.ask(path)
        assert status == 403
        assert b"tiny" not in content


@pytest.mark.parametrize(
    "header", [{"Host": "example.org"}, {"Origin": "http://example.org"}, {"Origin": "null"}]
)
def test_a_page_from_elsewhere_is_refused_even_with_the_token(client, header, file):
    for path, body in (("api/summary", None), ("api/decide", keep(0))):
        assert client.ask(f"/{client.token}/{path}", body, **header)[0] == 403
    assert not file.path.exists()


def test_a_form_cannot_decide(client, file):
    status, _, _ = client.ask(f"/{client.token}/api/decide", keep(0), Content_Type="text/plain")
    assert status == 415
    assert not file.path.exists()


def test_only_this_machine_is_listened_to(server):
    assert server.address.startswith("http://127.0.0.1:")
    with pytest.raises(ParameterError, match="cannot be used"):
        ReviewServer(server.session, server.port)


def test_a_decision_and_its_undo_are_answered_with_what_came_of_them(client, file):
    status, answer = client.api(
        "decide", {"row": 1, "decision": "remove", "id_class": "dog", "note": ""}
    )
    assert (status, answer["image"]["fate"], answer["summary"]["mine"]) == (200, "removed", 1)
    assert "b,remove,dog," in file.path.read_text()
    status, answer = client.api("undo", {"time": answer["summary"]["undo"]["time"]})
    assert (status, answer["image"]["fate"], answer["summary"]["mine"]) == (200, "near", 0)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({**keep(0), "row": "0"}, "field 'row': Input should be a valid integer"),
        ({**keep(0), "row": True}, "field 'row': Input should be a valid integer"),
        ({**keep(0), "row": 17}, "expected an image from 0 to 5, found 17"),
        ({**keep(0), "row": -1}, "expected an image from 0 to 5"),
        ({**keep(0), "note": 3}, "field 'note': Input should be a valid string"),
        ([], "Input should be a valid dictionary"),
    ],
)
def test_a_wrong_decision_is_answered_with_what_is_wrong(client, body, found, file):
    status, answer = client.api("decide", body)
    assert status == 400
    assert found in answer["error"]


def answer_to(server: ReviewServer, request: str) -> bytes:
    """The first line of the answer to a request that no library would send."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=600) as raw:
        raw.sendall(request.replace("\n", "\r\n").encode())
        return raw.recv(4096).partition(b"\r\n")[0]


POST = (
    "POST {path}api/decide HTTP/1.1\nHost: {host}\nContent-Type: application/json\nContent-Length: "
)
NESTED = "[" * 32_000 + "]" * 32_000


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (POST + "64000\n\n{nested}", 400),
        (POST + "3\n\n{{a:", 400),
        (POST + "{digits}\n\n{{}}", 400),
        ("GET http://[::1 HTTP/1.1\nHost: {host}\n\n", 403),
        ("GET {path}http://[::1 HTTP/1.1\nHost: {host}\n\n", 404),
    ],
)
def test_a_damaged_request_gets_an_answer(client, server, request_, status):
    values = {
        "path": f"/{server.token}/",
        "host": f"127.0.0.1:{server.port}",
        "nested": NESTED,
        "digits": "9" * 5000,
    }
    assert answer_to(server, request_.format(**values)).split()[:2] == [
        b"HTTP/1.1",
        str(status).encode(),
    ]


def test_a_picture_with_a_text_bomb_is_refused(client, project):
    text = zlib.compress(b"Comment" + bytes(64 * 2**20))
    chunk = b"zTXtComment\0\0" + text
    head, rest = b"\x89PNG\r\n\x1a\n", (project / "photos/a.png").read_bytes()[8:]
    bomb = len(chunk[4:]).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
    (project / "photos/a.png").write_bytes(head + rest[:25] + bomb + rest[25:])
    status, _, content = client.ask(f"/{client.token}/picture/0")
    assert status == 500
    assert b"cannot be read" in content


def test_a_decision_in_the_year_9999_is_refused_with_its_row(client, file):
    client.api("decide", keep(0))
    line = file.path.read_text().splitlines()[-1]
    file.path.write_text(
        file.path.read_text() + "9999-12-31T23:59:59.999Z" + line[line.index(",") :] + "\n"
    )
    status, answer = client.api("decide", keep(1))
    assert status == 500
    assert "row 3: field 'time'" in answer["error"]


def test_a_queue_is_asked_for_by_filters(client):
    assert client.api("queue?fate=near&order=table") == (200, [1, 3])
    status, answer = client.api("queue?colour=red")
    assert status == 400
    assert "Known: split, fate, rule" in answer["error"]


def test_two_servers_on_one_file_keep_each_others_lines(ann, bob, file):
    turns = 30

    def decide_all(session) -> None:
        for turn in range(turns):
            session.decide(turn % SIX, "near" if turn // SIX % 2 else "far")

    writers = [threading.Thread(target=decide_all, args=(session,)) for session in (ann, bob)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = file.read()
    assert len(found) == 2 * turns
    assert set(found.current.group_by("image_id").len()["len"]) == {2}
    assert ann.summary()["reviewers"] == bob.summary()["reviewers"] == [["ann", SIX], ["bob", SIX]]


def test_what_was_saved_outlives_the_server(started, file: DecisionsFile):
    client = Client(started.address)
    saved = []
    for turn in range(20):
        status, _ = client.api(
            "decide", {**keep(turn % SIX), "decision": "near" if turn // SIX % 2 else "far"}
        )
        assert status == 200
        saved.append(f"{'abcdef'[turn % SIX]},{'near' if turn // SIX % 2 else 'far'},,")
    os.kill(started.pid, signal.SIGKILL)
    lines = file.path.read_text().splitlines()[1:]
    assert [",".join(line.split(",")[4:]) for line in lines] == saved
    assert file.read().current.height == SIX


def test_the_command_says_what_is_wrong(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    assert main(["benchmark", "review", "tiny", "--no-browser"]) == 2
    assert "params.yaml: the file does not exist" in capsys.readouterr().err
    (project / "params.yaml").write_text("benchmarks: {other: {}}")
    assert main(["benchmark", "review", "tiny", "--no-browser"]) == 2
    assert "unknown benchmark 'tiny'. Known: other" in capsys.readouterr().err


def stop(address: str) -> None:
    raise KeyboardInterrupt


def test_one_is_told_when_curate_would_not_see_the_decisions(project, monkeypatch, params, capsys):
    monkeypatch.chdir(project)
    named = {**params["benchmarks"]["tiny"], "decisions": "data/decisions/tiny.csv"}
    for benchmark, told in [(params["benchmarks"]["tiny"], True), (named, False)]:
        with pytest.raises(KeyboardInterrupt):
            serve(
                "tiny",
                {**params, "benchmarks": {"tiny": benchmark}},
                ReviewSettings(reviewer="ann"),
                ready=stop,
            )
        assert ("decisions: data/decisions/tiny.csv" in capsys.readouterr().err) == told


def test_a_run_without_regions_and_a_reviewer_without_a_name_are_refused(
    project, monkeypatch, params
):
    monkeypatch.chdir(project)
    with pytest.raises(
        ParameterError, match=r"unknown run 'large', or it has no regions\. Known: small"
    ):
        make_server("tiny", params, ReviewSettings(run="large"))
    with pytest.raises(DataError, match="reviewer"):
        make_server("tiny", params, ReviewSettings(reviewer="ann, bob"))


def test_without_regions_and_without_image_files_one_can_still_decide(project, monkeypatch, params):
    monkeypatch.chdir(project)
    with make_server(
        "tiny", {**params, "detectors": {}, "datasets": {}}, ReviewSettings(reviewer="ann")
    ) as server:
        session = server.session
        assert session.summary()["run"] is None
        session.decide(0, "keep")
        assert session.image(0)["fate"] == "far"
        with pytest.raises(ParameterError, match="'photos' is missing"):
            session.catalogue.file(0)


def test_a_decision_on_an_image_that_left_the_dataset_stops_the_start(
    project, monkeypatch, params, ann
):
    ann.decide(5, "keep")
    table = project / "artifacts" / "tables" / "photos" / "val" / "images.parquet"
    images = Images.read(table)
    images[images.image_id != "f"].write(table)
    monkeypatch.chdir(project)
    with pytest.raises(
        DataError, match=r"tiny.csv: row 2: field 'image_id': photos val has no image 'f'"
    ):
        make_server("tiny", params, ReviewSettings(reviewer="bob"))
