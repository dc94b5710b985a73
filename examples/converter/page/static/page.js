// What the page does beyond its forms: uploads with progress, deeds without leaving the page, rows that follow their files.
// Without it everything works, too: forms are sent, and "Refresh" shows how things stand.

const POLL_MS = 2000;
const said = document.getElementById("said");
const upload = document.getElementById("upload");

function say(line, bad = false) {
  const p = document.createElement("p");
  p.textContent = line;
  p.classList.toggle("bad", bad);
  said.replaceChildren(p);
}

function messageOf(answer) {
  return answer?.error?.message ?? "Something went wrong on our side.";
}

// In the reader's own time zone and words; the day only where it is not today's, seconds only where they matter.
function putTimesRight(root) {
  for (const time of root.querySelectorAll("time")) {
    const at = new Date(time.dateTime);
    const day = at.toDateString() === new Date().toDateString() ? {} : {day: "numeric", month: "short"};
    const second = "exact" in time.dataset ? {second: "2-digit"} : {};
    time.textContent = at.toLocaleString(undefined, {...day, hour: "2-digit", minute: "2-digit", ...second});
  }
}

// -- the queue -------------------------------------------------------------------------------

// A row is replaced only when its file has changed, so that nothing moves under a pointer and no focus is lost.
function place(row) {
  const shown = document.getElementById(row.id);
  if ("gone" in row.dataset) {
    if (shown?.contains(document.activeElement)) document.getElementById("files").focus();
    shown?.remove();
  } else if (shown === null) {
    const rows = document.getElementById("rows");
    const older = [...rows.children].find((one) => one.dataset.created < row.dataset.created);
    rows.insertBefore(row, older ?? null);
  } else if (shown.dataset.version !== row.dataset.version) {
    const deed = shown.contains(document.activeElement) ? document.activeElement.dataset.deed : null;
    shown.replaceWith(row);
    if (deed) (row.querySelector(`[data-deed="${deed}"]`) ?? row.querySelector("[data-deed]"))?.focus();
  }
}

let asking = null;
let away = false;

async function refresh() {
  asking ??= ask().finally(() => { asking = null; });
  return asking;
}

async function ask() {
  const files = document.getElementById("files");
  try {
    const answer = await fetch(`/queue?since=${encodeURIComponent(files.dataset.since)}`);
    if (!answer.ok) throw new Error(answer.status);
    const part = new DOMParser().parseFromString(await answer.text(), "text/html");
    putTimesRight(part);
    for (const row of [...part.querySelectorAll("#rows > tr")].reverse()) place(document.adoptNode(row));
    for (const id of ["banner", "counts"]) {
      const [shown, fresh] = [document.getElementById(id), part.getElementById(id)];
      if (shown.textContent.trim() !== fresh.textContent.trim()) shown.replaceChildren(...fresh.childNodes);
    }
    files.dataset.since = part.getElementById("files").dataset.since;
    if (away) say("Connected again.");
    away = false;
  } catch {
    if (!away) say("The server cannot be reached. Your files are safe; this page tries again by itself.", true);
    away = true;
  }
}

async function keepAsking() {
  for (;;) {
    await new Promise((done) => setTimeout(done, POLL_MS));
    if (document.visibilityState === "visible") await refresh();
  }
}

document.addEventListener("submit", async (event) => {
  if (event.target === upload || event.target.method !== "post") return;
  event.preventDefault();
  const button = event.target.querySelector("button");
  if (button.ariaDisabled) return;  // pressed twice
  button.setAttribute("aria-disabled", "true");
  try {
    const answer = await fetch(event.target.action, {method: "POST", headers: {Accept: "application/json"}});
    if (!answer.ok) say(messageOf(await answer.json()), true);
  } catch {
    say("The server cannot be reached. Try again in a moment.", true);
  }
  await asking;  // that one may have been asked before the deed
  await refresh();
  button.removeAttribute("aria-disabled");
});

// -- uploads ---------------------------------------------------------------------------------

function send(file) {
  const line = document.createElement("li");
  const name = Object.assign(document.createElement("span"), {className: "name", textContent: file.name});
  const state = Object.assign(document.createElement("span"), {textContent: "0 %"});
  const bar = Object.assign(document.createElement("progress"), {max: 100, value: 0});
  bar.setAttribute("aria-label", `Upload of ${file.name}`);
  line.append(name, state, bar);
  document.getElementById("uploads").append(line);

  const fail = (message) => {
    state.textContent = message;
    state.className = "bad";
    bar.remove();
    say(`${file.name}: ${message}`, true);
  };
  if (file.size > Number(upload.dataset.bytesMax)) {
    fail("This file is too large.");
    return Promise.resolve(null);
  }
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    const form = new FormData();
    form.append("file", file);
    request.upload.onprogress = (sent) => {
      bar.value = sent.lengthComputable ? (100 * sent.loaded) / sent.total : 0;
      state.textContent = `${Math.round(bar.value)} %`;
    };
    request.onload = () => {
      if (request.status === 202) line.remove();
      else fail(messageOf(request.response));
      done(request.response?.jobs?.[0] ?? null);
    };
    request.onerror = () => { fail("The server cannot be reached. Upload it again."); done(null); };
    request.open("POST", "/api/upload");
    request.responseType = "json";
    request.setRequestHeader("Accept", "application/json");
    request.send(form);
  });
}

async function sendAll(files) {
  for (const line of [...document.getElementById("uploads").children]) {
    if (!line.querySelector("progress")) line.remove();  // the others are still on their way
  }
  const jobs = [];
  for (const file of files) {
    jobs.push(await send(file));
    await refresh();
  }
  if (jobs.includes(null)) return;
  const known = jobs.filter((job) => job.duplicate && job.status === "complete").length;
  const queued = jobs.length - known;
  const name = (count) => jobs.length === 1 ? files[0].name : count === 1 ? "1 file" : `${count} files`;
  const lines = [];
  if (queued) lines.push(`${name(queued)} ${queued === 1 ? "is" : "are"} in the queue.`);
  if (known) lines.push(`${name(known)} ${known === 1 ? "was" : "were"} converted before, and can be downloaded.`);
  say(lines.join(" "));
}

upload.addEventListener("submit", async (event) => {
  event.preventDefault();
  const files = [...upload.elements.file.files];
  upload.reset();
  await sendAll(files);
});
upload.addEventListener("dragover", (event) => { event.preventDefault(); upload.classList.add("over"); });
upload.addEventListener("dragleave", () => upload.classList.remove("over"));
upload.addEventListener("drop", async (event) => {
  event.preventDefault();
  upload.classList.remove("over");
  await sendAll([...event.dataTransfer.files]);
});

upload.querySelector(".drop").hidden = false;
upload.querySelector(".at-once").hidden = true;  // it sends them one by one
document.getElementById("reload").hidden = true;
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && refresh());
putTimesRight(document);
keepAsking();
