import { Chooser } from "./chooser.js";
import { el, fill, visible } from "./dom.js";
import { ago } from "./numbers.js";
import { Page } from "./page.js";
import { Run } from "./run.js";
import { onChange, readAddress } from "./state.js";

// The page of a server: it asks for what is new as long as somebody sees it. It asks again and again, rather than holding a connection open,
// since a browser opens six at most to one server, for all its tabs.
const EVERY_MS = 1000;
const SOON_MS = 300; // while the server reads
const QUIET_S = 600; // without a new number a run may have been killed

const asked = new URLSearchParams(location.search);
let key = asked.get(asked.get("show") === "b" ? "with" : "run") ?? "";
const given = readAddress();
const words = el("span", {});
const follow = el("input", { type: "checkbox", id: "follow", onchange: () => toggleFollow() });
const label = el("label", { title: "go to each new step, and to the first finding" }, follow, " follow");
const sign = el("span", { id: "live", class: "live" }, words, label);
const chooser = new Chooser(document.getElementById("runs"), asked);

let version = "";
let comparedVersion = "";
let page = null;
let timer = 0; // 0: stopped, as nobody sees the page
let lastAnswer = null;

function say(isOn, title, text) {
  sign.className = `live ${isOn ? "on" : "off"}`;
  fill(words, el("b", {}, title), text ? ` · ${text}` : "");
}

// Before there is anything to show.
function wait(name, text, title = "Nothing to show yet") {
  fill(document.getElementById("head"), el("h1", {}, el("span", { class: "brand" }, "numscope "), visible(name, 120)), sign);
  fill(document.getElementById("findings"), el("h2", {}, title), el("p", { id: "wait" }, visible(text, 600)));
  for (const id of ["compare", "alerts", "timeline", "map", "culprit", "site"]) document.getElementById(id).hidden = true;
  document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
}

function tell(answer) {
  const written = answer.ago === null ? "" : `written ${ago(answer.ago)}`;
  if (answer.state === "gone") say(false, "○ the folder is gone", visible(answer.message, 300));
  else if (answer.state !== "shown") say(answer.state !== "unreadable", answer.state === "unreadable" ? "▲ can't be read" : "● waiting", visible(answer.message, 600));
  else if (answer.ended) say(true, "■ the run has ended", written);
  else if (answer.ago > QUIET_S) say(false, "◌ quiet", `${written}; it may have been killed`);
  else say(true, "● live", written);
}

function toggleFollow() {
  page.follows = follow.checked;
  if (follow.checked) page.renew().then(() => (follow.checked = page.follows));
}

async function show(answer) {
  const { content } = answer;
  if (!page && content) {
    page = new Page(new Run(content), given);
    page.run.isLive = !answer.ended;
    page.sign = sign;
    page.follows = follow.checked = !given.has("step") && !given.has("finding") && !content.findings.length;
    if (asked.has("with")) page.compare(null, sides([asked.get("run"), asked.get("with")]));
    await page.start();
    onChange((changed) => {
      if (changed.includes("step")) page.follows = follow.checked = false;
    });
  } else if (content) {
    page.run.take(content);
    page.run.isLive = !answer.ended;
    await page.renew();
    follow.checked = page.follows;
  }
  version = answer.version;
}

function sides(names) {
  const choose = (side) => {
    asked.set("show", side ? "b" : "a");
    location.search = asked;
  };
  return { names, chosen: asked.get("show") === "b" ? 1 : 0, choose };
}

async function ask(path, values) {
  const response = await fetch(`api/${path}?${new URLSearchParams(values)}`, { cache: "no-store" });
  if (response.status === 403) throw new Error("the server was started again: open the link that it has printed");
  if (response.status === 404) throw new Error("the server has no run of this name");
  if (!response.ok) throw new Error(`the server failed (${response.status})`);
  return response.json();
}

async function look() {
  timer = null; // neither waiting nor stopped
  let next = EVERY_MS;
  try {
    const answer = await ask("run", { run: key, since: version });
    lastAnswer = performance.now();
    if (!key) name(answer.key);
    tell(answer);
    await show(answer);
    label.hidden = answer.ended || !page;
    if (!page) wait(answer.name, answer.message || "Its records are being read.", answer.state === "reading" ? "Reading the run …" : undefined);
    if (answer.state === "reading") next = SOON_MS;
    document.title = `${page?.run.numFindings ? `✖ ${page.run.numFindings} ` : page?.run.numAlerts ? `⚑ ${page.run.numAlerts} ` : ""}${answer.name} – numscope`;
    if (page && asked.has("with")) await compare();
    await chooser.look(ask, answer.key);
    document.documentElement.dataset.version = version;
  } catch (error) {
    const since = lastAnswer === null ? "" : `; what is shown is from ${ago((performance.now() - lastAnswer) / 1000)}`;
    say(false, error instanceof TypeError ? "○ the server is gone" : `○ ${error.message}`, `${since.slice(2)}`);
    if (!page) wait("", "Nothing came from the server.");
  }
  timer = document.hidden ? 0 : setTimeout(look, next);
}

// The address of the first run names it from here on.
function name(run) {
  key = run;
  asked.set("run", run);
  history.replaceState(null, "", `?${asked}${location.hash}`);
}

async function compare() {
  const told = await ask("comparison", { run: asked.get("run"), with: asked.get("with"), since: comparedVersion });
  if (!("comparison" in told) || told.version === comparedVersion) return;
  comparedVersion = told.version;
  page.compare(told.comparison, sides(told.names));
  page.panes.get("compare").update();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && timer === 0) look();
});
look();
