// What the dashboard's view of changes must do. Called by scripts/dashboard-test.mjs in its tab.

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "./stage.mjs";

// step NAME [complaints that belong to it] WORK, as in dashboard-test.mjs; NAME is a file's name that is markup.
export async function changesSteps({ page, root, server, step, NAME, MARKUP }) {
  const text = (selector) => page.$eval(selector, (node) => node.innerText);
  const held = (path) => readFileSync(join(root, path), "utf8");
  const entries = async () => (await server.get("/api/history")).entries;
  // Makes a call and returns the entry that it left.
  async function change(tool, args, session) {
    const answer = await server.tool(tool, args, session);
    assert.equal(answer.code, undefined, JSON.stringify(answer));
    assert.equal(answer.meta?.not_undoable, undefined, JSON.stringify(answer));
    return (await entries())[0];
  }
  const write = (path, content, session) => change("linux_fs_write", { path, content, mode: "rewrite" }, session);
  async function open(id) {
    await page.evaluate((id) => { location.hash = `#changes/${id}`; }, id);
    await until(page, `${id}`, (id) => document.querySelector("#entry-title").textContent.startsWith(`${id} `), id);
  }
  const groupBy = (what) => page.click(`#grouping [data-group=${what}]`);
  const listed = () => page.$$eval("#history a", (all) => all.map(({ dataset }) => dataset.entry));
  const ask = async () => {
    await page.click("#undo");
    await until(page, "the plan", () => document.querySelector("#undo-dialog").open && !/Checking|^$/.test(document.querySelector("#undo-say").textContent));
  };
  const isOpen = () => page.$eval("#undo-dialog", (dialog) => dialog.open);

  let first;
  let second;
  await step("lists changes by call, by file and by session", null, async () => {
    first = await write("notes.txt", "one\ntwo\nthree\n", "alpha");
    second = await write("notes.txt", "one\n2\nthree\nfour\n", "beta");
    await write("other.txt", "other\n", "beta");
    await page.click("nav a[href='#changes']");
    await until(page, "three entries", () => document.querySelectorAll("#history a").length >= 3);
    assert.deepEqual((await listed()).slice(0, 3), (await entries()).slice(0, 3).map(({ id }) => id));
    assert.match(await text(`#history a[data-entry=${second.id}]`), /linux_fs_write/);
    assert.match(await text(`#history a[data-entry=${second.id}]`), /~1 notes\.txt/);
    await groupBy("file");
    const files = await page.$$eval("#history summary", (all) => all.map((node) => node.innerText.split(/\s+/)));
    assert.deepEqual(files.slice(0, 2), [["other.txt", "1"], ["notes.txt", "2"]]);
    await groupBy("session");
    await page.click("#history details[data-group='session beta'] summary");
    const own = await page.$$eval("#history details[data-group='session beta'] a", (all) => all.map(({ dataset }) => dataset.entry));
    assert.equal(own.length, 2);
    await groupBy("call");
  });

  await step("shows an entry's files side by side", null, async () => {
    await open(second.id);
    const sides = await page.$$eval("#entry-files .diff.sides tr:not(.gap)", (rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));
    assert.deepEqual(sides, [["1", "one", "1", "one"], ["2", "two", "2", "2"], ["3", "three", "3", "three"], ["", "", "4", "four"]]);
    const tint = (selector) => page.$eval(selector, (cell) => getComputedStyle(cell).backgroundColor);
    assert.notEqual(await tint(".diff .text.removed"), await tint(".diff .text.added"));
    assert.equal(await page.$eval(`#history a[data-entry=${second.id}]`, (link) => link.getAttribute("aria-current")), "true");
  });

  await step("marks changes from outside", null, async () => {
    writeFileSync(join(root, "by-hand.txt"), "by hand\n");
    await server.tool("run_cmd", { argv: ["true"] });
    const outside = (await entries()).find(({ source }) => source === "outside");
    assert.ok(outside, "recorded as from outside");
    await until(page, "the entry", (id) => document.querySelector(`#history a[data-entry=${id}] .mark.outside`), outside.id);
    await open(outside.id);
    assert.match(await text("#entry-title"), /Change from outside/);
    assert.match(await text("#entry-files"), /by-hand\.txt/);
  });

  await step("undoes after a look, and only when confirmed", null, async () => {
    await open(second.id);
    await ask();
    assert.match(await text("#undo-plan"), /Restored\s+notes\.txt/);
    assert.equal(held("notes.txt"), "one\n2\nthree\nfour\n", "a look changes nothing");
    await page.click("#undo-cancel");
    assert.equal(await isOpen(), false);
    assert.equal(held("notes.txt"), "one\n2\nthree\nfour\n");
    await ask();
    await page.click("#undo-confirm");
    await until(page, "the undo", () => /Undo of/.test(document.querySelector("#entry-title").textContent));
    assert.equal(await isOpen(), false);
    assert.equal(held("notes.txt"), "one\ntwo\nthree\n");
    assert.match(await text("#entry-about"), /1 path restored/);
    assert.match(await text("#entry-title"), new RegExp(`Undo of ${second.id}$`));
    await until(page, "the mark", (id) => document.querySelector(`#history a[data-entry=${id}] .mark.undone`), second.id);
    await open(second.id);
    assert.equal(await page.$eval("#undo", (button) => button.checkVisibility()), false, "not twice");
  });

  await step("shows conflicts and forces nothing", null, async () => {
    const third = await write("other.txt", "newer\n");
    writeFileSync(join(root, "other.txt"), "newest, by hand\n");
    await open(third.id);
    await ask();
    assert.match(await text("#undo-plan .conflicts"), /other\.txt/);
    assert.match(await text("#undo-say"), /Nothing can be restored/);
    assert.equal(await page.$eval("#undo-confirm", (button) => button.disabled), true);
    await page.keyboard.press("Escape");
    assert.equal(await isOpen(), false);
    assert.equal(held("other.txt"), "newest, by hand\n");
  });

  await step("changes nothing when a file changes after the look", /409/, async () => {
    const fourth = await write("late.txt", "late\n");
    await open(fourth.id);
    await ask();
    assert.match(await text("#undo-plan"), /Restored\s+late\.txt/);
    writeFileSync(join(root, "late.txt"), "changed meanwhile\n");
    await page.click("#undo-confirm");
    await until(page, "the refusal", () => /Nothing was changed/.test(document.querySelector("#undo-say").textContent));
    assert.match(await text("#undo-plan .conflicts"), /late\.txt/);
    assert.equal(held("late.txt"), "changed meanwhile\n");
    await page.click("#undo-cancel");
  });

  await step("undoes the chosen files of an entry", null, async () => {
    const both = await change("run_cmd", { command: "printf 1 > first.txt; printf 2 > second.txt" });
    await open(both.id);
    await ask();
    assert.equal(await page.$$eval("#undo-files input:checked", (all) => all.length), 2);
    await page.evaluate(() => [...document.querySelectorAll("#undo-files label")].find((label) => label.textContent === "second.txt").click());
    await until(page, "the plan for one", () => document.querySelector("#undo-confirm").textContent === "Undo 1 path" && !document.querySelector("#undo-confirm").disabled);
    await page.click("#undo-confirm");
    await until(page, "the undo", () => /Undo of/.test(document.querySelector("#entry-title").textContent));
    assert.deepEqual([existsSync(join(root, "first.txt")), held("second.txt")], [false, "2"]);
    await until(page, "the mark", (id) => /partly undone/.test(document.querySelector(`#history a[data-entry=${id}]`).innerText), both.id);
  });

  await step("shows hostile names and contents as text", null, async () => {
    const hostile = await write(NAME, `${MARKUP}\n\u202egnp.exe\n`, MARKUP);
    await open(hostile.id);
    assert.equal(await page.$eval("#entry-files .path", (node) => node.textContent), NAME);
    assert.ok((await page.$$eval("#entry-files .text", (all) => all.map((cell) => cell.textContent))).includes(MARKUP));
    assert.match(await text("#entry-files .unseen"), /\\u\{202e\}/);
    await groupBy("session");
    await until(page, "the session", (name) => [...document.querySelectorAll("#history summary .id")].some((node) => node.textContent === name), MARKUP);
    await groupBy("file");
    await until(page, "the file", (name) => [...document.querySelectorAll("#history summary .path")].some((node) => node.textContent === name), NAME);
    await ask();
    assert.equal(await page.$eval("#undo-plan .path", (node) => node.textContent), NAME);
    await page.click("#undo-cancel");
    await groupBy("call");
    assert.equal(await page.$$eval("main img, main script, main b", (all) => all.length), 0);
    assert.doesNotMatch(await page.title(), /owned/);
  });

  await step("opens and undoes by keyboard", null, async () => {
    await page.$eval("#history a", (link) => link.focus());
    await page.keyboard.press("ArrowDown");
    const id = await page.evaluate(() => document.activeElement.dataset.entry);
    assert.equal(id, (await listed())[1]);
    await page.keyboard.press("Enter");
    await until(page, "the entry", (id) => document.querySelector("#entry-title").textContent.startsWith(`${id} `) && document.activeElement.id === "entry-title", id);
    await open(first.id);
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.id), "undo");
    await page.keyboard.press("Enter");
    await until(page, "the dialog", () => document.querySelector("#undo-dialog").open);
    await page.keyboard.press("Escape");
    assert.equal(await isOpen(), false);
    assert.equal(await page.evaluate(() => document.activeElement.id), "undo", "back where it was");
  });

  await step("fits changes on a phone, in light and dark", null, async () => {
    await open(second.id);
    const ground = () => page.$eval("#entry-files .diff", (node) => getComputedStyle(node).backgroundColor);
    const grounds = new Set();
    for (const value of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value }]);
      grounds.add(await ground());
    }
    assert.equal(grounds.size, 2);
    for (const width of [360, 768, 2560]) {
      await page.setViewport({ width, height: 800 });
      await until(page, "the diff", (sides) => document.querySelector("#entry-files .diff")?.classList.contains("sides") === sides, width > 960);
      for (const what of ["call", "file", "session"]) {
        await groupBy(what);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(over <= 0, `changes by ${what} at ${width} are ${over} pixels too wide`);
      }
    }
    await groupBy("call");
    await page.setViewport({ width: 1440, height: 900 });
    await page.emulateMediaFeatures([]);
  });
}
