"use strict";

// Keeps an open page true. The server rings when something has moved; the page then asks for itself once more and puts
// the parts marked data-live in place of those shown. Without this script it is the same page, as of when it was loaded.
(() => {
  const controls = document.querySelector("[data-live-controls]");
  const status = document.querySelector("[data-live-status]");
  const button = document.querySelector("[data-live-switch]");
  if (!document.querySelector("[data-live]")) return;

  const AGAIN_MS = 2000;
  const LONGEST_PAUSE_MS = 30000;
  const PART = 5;
  const FOCUSABLE = "a[href], button, input, select, summary, [tabindex]";
  let bell = null;
  let isPaused = false;
  let isLoading = false;
  let isStale = false;
  let again = 0;

  function say(words, mark) {
    if (status.textContent !== words) status.textContent = words;
    controls.className = `live ${mark}`;
  }

  function isReadIn(part) {
    const selection = document.getSelection();
    return !selection.isCollapsed && part.contains(selection.anchorNode);
  }

  function focusedIn(part) {
    const focused = document.activeElement;
    if (!part.contains(focused)) return null;
    const alike = focused.id ? `#${CSS.escape(focused.id)}` : focused.getAttribute("href")
      ? `[href="${CSS.escape(focused.getAttribute("href"))}"]` : focused.localName;
    const among = (choice) => [...part.querySelectorAll(choice)].indexOf(focused);
    return { alike, place: among(alike), stop: among(FOCUSABLE) };
  }

  // What is gone leaves the focus to what has taken its place: who walks through a list stays where they were in it.
  function focusAgain(part, { alike, place, stop }) {
    const [same, stops] = [part.querySelectorAll(alike), part.querySelectorAll(FOCUSABLE)];
    const next = same[place] ?? same[0] ?? stops[Math.min(stop, stops.length - 1)] ?? document.getElementById("main");
    next.focus({ preventScroll: true });
  }

  function replace(part, fresh) {
    for (const open of part.querySelectorAll("details[open]")) {
      fresh.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute("open", "");
    }
    if (part.innerHTML === fresh.innerHTML || isReadIn(part)) return;
    const scrolled = [...part.querySelectorAll(".scroll, pre")].map((each) => [each.scrollLeft, each.scrollTop]);
    const focused = focusedIn(part);
    part.replaceChildren(...fresh.childNodes);
    part.querySelectorAll(".scroll, pre").forEach((each, place) => {
      [each.scrollLeft, each.scrollTop] = scrolled[place] ?? [0, 0];
    });
    if (focused) focusAgain(part, focused);
  }

  async function renew() {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected) { location.reload(); return; }  // the login has run out
    if (answer.status === 404) { rest(); say("No longer there", "lost"); }
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (isPaused) return;
    for (const part of document.querySelectorAll("[data-live]")) {
      const match = fresh.getElementById(part.id);
      if (match) replace(part, match);
    }
  }

  // A look that is expensive, such as a search through a long history, is taken less often.
  async function refresh() {
    isStale = true;
    if (isLoading) return;
    isLoading = true;
    while (isStale && !isPaused) {
      isStale = false;
      const began = performance.now();
      // A server that is away is noticed by the bell as well, which says so.
      await renew().catch(() => {});
      const pause = Math.min(LONGEST_PAUSE_MS, PART * (performance.now() - began));
      await new Promise((resolve) => { setTimeout(resolve, pause); });
    }
    isLoading = false;
  }

  function listen() {
    clearTimeout(again);
    bell?.close();
    bell = new EventSource("/page/changes");
    bell.onopen = () => { say("Live", "on"); refresh(); };
    bell.addEventListener("changed", refresh);
    bell.onerror = () => {
      say("Connection lost, trying again", "lost");
      bell.close();
      again = setTimeout(listen, AGAIN_MS);
      refresh();  // a bell cannot tell that the login has ended; a look can, and leads to the door
    };
  }

  function rest() {
    clearTimeout(again);
    bell?.close();
    bell = null;
  }

  // A browser opens few connections to one server, so only pages that are looked at keep one.
  function follow() {
    if (isPaused || document.hidden) rest(); else listen();
  }

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Resume updates" : "Pause updates";
    if (isPaused) say("Updates paused", "");
    follow();
  });
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", rest);
  addEventListener("pageshow", (event) => { if (event.persisted) follow(); });

  controls.hidden = false;
  say("Connecting", "");
  follow();
})();
