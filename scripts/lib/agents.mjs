// What the dashboard must do with several servers at once: three over stdio and the one over HTTP that serves the page.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { StdioServer, until } from "./stage.mjs";

const { LLMC, NODE_TOOLS } = process.env;
const VIEWS = ["live", "agents", "calls", "running", "savings", "changes", "results", "search", "server"];
const AXE = readFileSync(createRequire(`${NODE_TOOLS}/`).resolve("axe-core/axe.min.js"), "utf8");

async function open(page, view) {
  await page.evaluate((hash) => { location.hash = hash; }, `#${view}`);
  const name = view.split("/")[0];
  await until(page, view, (name) => document.querySelector(`#view-${name}`).checkVisibility(), name);
}

const listed = (page) => page.$$eval("#call-list a", (all) => all.map((link) => link.innerText));

async function count(page, wanted) {
  await until(page, `${wanted} calls`, (wanted) => document.querySelectorAll("#call-list a").length === wanted, wanted);
}

// Chooses an option once it is there.
async function choose(page, field, value) {
  await until(page, `${value} in ${field}`, (field, value) => [...document.querySelector(field).options].some((option) => option.value === value), field, value);
  await page.select(field, value);
}

export async function agentsSteps({ page, root, server, step, browser }) {
  const agents = ["planner", "builder", "reviewer"].map((name) => new StdioServer(root, name));
  const [planner, builder, reviewer] = agents;
  const before = (await server.get("/api/calls?limit=200")).calls.length;
  try {
    await step("shows calls of three stdio servers and of the HTTP server, as they end", null, async () => {
      await Promise.all(agents.map((agent) => agent.start()));
      await open(page, "calls");
      await count(page, Math.min(before, 50));
      await planner.call("read_file", { path: "small.txt" });
      await until(page, "the call", () => /read_file small.txt[^]*planner/.test(document.querySelector("#call-list a").innerText));
      await builder.call("linux_fs_write", { path: "made.txt", content: "a purple needle\n" });
      await reviewer.call("read_file", { path: "nowhere.txt" });
      await server.tool("stat", { path: "small.txt" });
      // Each server records its calls a moment after they end, so their order may be another.
      await until(page, "all of them", () => {
        const newest = [...document.querySelectorAll("#call-list a")].slice(0, 4).map((link) => link.innerText);
        const wanted = [/stat small.txt[^]*watched/, /nowhere.txt[^]*reviewer[^]*NOT_FOUND/, /made.txt[^]*builder[^]*changed files/, /small.txt[^]*planner/];
        return wanted.every((pattern) => newest.some((text) => pattern.test(text)));
      });
    });

    await step("searches and filters calls", null, async () => {
      await page.type("#call-query", "PURPLE needle");
      await count(page, 1);
      assert.match((await listed(page))[0], /linux_fs_write/);
      await page.$eval("#call-query", (field) => { field.value = ""; });
      await page.type("#call-query", " ");
      await choose(page, "#call-client", "reviewer");
      await count(page, 1);
      await page.click("#call-failed");
      await count(page, 1);
      await choose(page, "#call-client", "planner");
      await until(page, "that there is none", () => /No call matches/.test(document.querySelector("#call-note").innerText));
      await page.click("#call-failed");
      await count(page, 1);
      await choose(page, "#call-client", "");
      await choose(page, "#call-tool", "linux_fs_write");
      await until(page, "the tool's calls", () => [...document.querySelectorAll("#call-list .kind")].every((node) => /linux_fs_write/.test(node.innerText)));
      const { servers } = await server.get("/api/activity");
      assert.equal(servers.length, 4);
      await choose(page, "#call-tool", "");
      await choose(page, "#call-server", servers.find(({ pid }) => pid === planner.pid).id);
      await count(page, 1);
      await choose(page, "#call-server", "");
      await until(page, "all", () => document.querySelectorAll("#call-list a").length > 3);
    });

    await step("shows a call's arguments, answer and changes, and undoes them", null, async () => {
      const [{ id }] = (await server.get("/api/calls?query=purple&tool=linux_fs_write")).calls;
      await page.click(`#call-list a[data-call="${id}"]`);
      await until(page, "the changes", () => /made.txt/.test(document.querySelector("#call-changes").innerText));
      const facts = await page.$eval("#call-facts", (node) => node.innerText);
      assert.match(facts, /builder 1\.0/);
      assert.match(facts, /MCP/);
      assert.match(await page.$eval("#call-args", (node) => node.textContent), /a purple needle/);
      assert.match(await page.$eval("#call-answer", (node) => node.textContent), /bytes_written/);
      assert.ok(existsSync(join(root, "made.txt")));
      await page.click("#call-undo");
      await until(page, "the plan", () => !document.querySelector("#undo-confirm").disabled);
      await page.click("#undo-confirm");
      await until(page, "that it is undone", () => /restored/.test(document.querySelector("#call-about").innerText));
      assert.ok(!existsSync(join(root, "made.txt")));
    });

    let cancelled;
    await step("shows what each agent is doing now", null, async () => {
      await open(page, "agents");
      cancelled = builder.call("run_cmd", { command: "for i in 1 2 3; do echo tick $i; done; sleep 300", timeout: 300 });
      const card = await until(page, "the working agent", () => document.querySelector("#agents [data-state=working]")?.innerText);
      assert.match(card, /builder/);
      assert.match(card, /now run_cmd/);
      assert.match(card, /tick/);
      const idle = await page.$$eval("#agents [data-state=idle]", (all) => all.map((node) => node.innerText).join("\n"));
      assert.match(idle, /planner/);
      assert.match(idle, /reviewer[^]*NOT_FOUND/);
    });

    // The output of a call that has ended is gone.
    await step("shows what runs with its output, and stops it", /404/, async () => {
      const started = await reviewer.call("linux_proc_start", { argv: ["sh", "-c", "echo hello from behind; sleep 300"] });
      const { proc_id: id } = JSON.parse(started);
      await open(page, "running");
      const button = (kind, target) => `#running [data-job^="${kind} "][data-job$="/${target}"]`;
      await until(page, "the process", (selector) => document.querySelector(selector), button("output", id));
      await page.click(button("output", id));
      await until(page, "its output", () => /hello from behind/.test(document.querySelector("#running-text").textContent));
      const call = await page.$$eval("#running [data-job^='output ']", (all) => all.map(({ dataset }) => dataset.job).find((job) => /\/c\d+$/.test(job)));
      await page.click(`[data-job="${call}"]`);
      await until(page, "the command's output", () => /tick 3/.test(document.querySelector("#running-text").textContent));
      for (const target of [id, call.split("/")[1]]) {
        // Once to ask, once to stop.
        await page.click(button("stop", target));
        await until(page, "the question", (selector) => /Stop it\?/.test(document.querySelector(selector)?.innerText), button("stop", target));
        await page.click(button("stop", target));
        await until(page, "its end", (selector) => !document.querySelector(selector), button("stop", target));
      }
      assert.match(await cancelled, /cancel/i);
      await until(page, "how the process ended", () => /ended by signal/.test(document.querySelector("#running").innerText));
      await page.click("#running-close");
    });

    await step("adds savings up by day, client and tool", null, async () => {
      await open(page, "savings");
      await until(page, "the tables", () => document.querySelectorAll("table.savings").length === 3);
      assert.match(await page.$eval("#savings-client", (node) => node.innerText), /planner[^]*|builder[^]*/);
      assert.match(await page.$eval("#savings-tool", (node) => node.innerText), /te_cat/);
      const { days } = await server.get("/api/savings?days=30");
      assert.equal(days.length, await page.$$eval("#savings-day tbody tr", (rows) => rows.length));
      await page.click("[data-days='7']");
      await until(page, "the tables again", () => document.querySelectorAll("table.savings").length === 3);
    });

    await step("has no violations that axe-core finds, light and dark", null, async () => {
      await page.evaluate(AXE);
      const [{ id }] = (await server.get("/api/calls?limit=1")).calls;
      for (const scheme of ["light", "dark"]) {
        await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: "reduce" }]);
        for (const view of [...VIEWS, `calls/${id}`]) {
          await open(page, view);
          await new Promise((done) => setTimeout(done, 400));
          const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
          const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, any }) => `${html.slice(0, 160)} ${any[0]?.message ?? ""}`).join(" | ").slice(0, 900)}`);
          assert.deepEqual(found, [], `${view}, ${scheme}`);
        }
      }
      await page.emulateMediaFeatures([]);
    });

    await step("shows whole rows on a phone", null, async () => {
      for (const width of [360, 390]) {
        await page.setViewport({ width, height: 780 });
        for (const view of VIEWS) {
          await open(page, view);
          await new Promise((done) => setTimeout(done, 250));
          const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(over <= 0, `${view} at ${width} is ${over} pixels too wide`);
          const clipped = await page.$$eval("main :is(li, tr, td, .kind, .files, .what, .args)", (all) => all
            .filter((node) => node.checkVisibility() && getComputedStyle(node).overflowX !== "visible" && node.scrollWidth > node.clientWidth + 1)
            .map((node) => node.outerHTML.slice(0, 200)));
          assert.deepEqual(clipped, [], `${view} at ${width}`);
        }
      }
      await page.setViewport({ width: 1440, height: 900 });
    });

    await step("can be used from the keyboard", null, async () => {
      await open(page, "calls");
      await until(page, "calls", () => document.querySelectorAll("#call-list a").length > 3);
      await page.focus("#call-query");
      await page.keyboard.press("Tab");
      await page.focus("#call-list a");
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      await until(page, "the second call", () => document.querySelector("#call-list li:nth-child(2) a").getAttribute("aria-current") === "true");
      await until(page, "its title", () => document.activeElement.id === "call-title");
    });

    await step("still has the calls after all servers have ended", /ERR_|Failed to load|503/, async () => {
      const { calls } = await server.get("/api/calls?limit=50");
      await Promise.all(agents.map((agent) => agent.stop()));
      await server.stop();
      await server.start();
      await until(page, "the stream", () => document.querySelector("#state").dataset.state === "on");
      await open(page, "live");
      await open(page, "calls");
      await count(page, calls.length);
      await open(page, "agents");
      await until(page, "agents that have ended", () => /planner/.test(document.querySelector("#agents-earlier").innerText));
    });

    await step("signs in with a link, once", null, async () => {
      const printed = execFileSync(LLMC, ["dashboard", "--no-open", "--root", root], { encoding: "utf8" });
      const link = /http:\S+/.exec(printed)[0];
      assert.ok(link.startsWith(server.url), "the server that runs already");
      const context = await browser.createBrowserContext();
      try {
        const other = await context.newPage();
        await other.goto(link);
        await until(other, "the stream", () => document.querySelector("#state").dataset.state === "on");
        assert.equal(new URL(other.url()).search, "", "the ticket is not in the address");
        const [cookie] = await context.cookies();
        assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
        await other.reload();
        await until(other, "the stream again", () => document.querySelector("#state").dataset.state === "on");
        const again = await other.goto(link);
        assert.equal(again.status(), 410);
      } finally {
        await context.close();
      }
    });
  } finally {
    await Promise.all(agents.map((agent) => agent.stop()));
  }
}

export async function linkSteps({ root, step, browser }) {
  await step("is served to stdio users without a server of their own", null, async () => {
    const printed = execFileSync(LLMC, ["dashboard", "--no-open", "--root", root], { encoding: "utf8" });
    const link = /http:\S+/.exec(printed)[0];
    const context = await browser.createBrowserContext();
    let pid;
    try {
      const page = await context.newPage();
      await page.goto(link);
      await until(page, "the stream", () => document.querySelector("#state").dataset.state === "on");
      await open(page, "calls");
      await until(page, "the calls so far", () => document.querySelectorAll("#call-list a").length > 3);
      const { servers } = await page.evaluate(() => fetch("/api/activity").then((response) => response.json()));
      assert.deepEqual(servers.map(({ kind }) => kind), ["dashboard"]);
      ({ pid } = servers[0]);
      const stranger = await (await browser.createBrowserContext()).newPage();
      await stranger.goto(new URL("/", link).href);
      await until(stranger, "how to get a link", () => /llmc dashboard/.test(document.querySelector("#need-link").innerText));
      await stranger.browserContext().close();
    } finally {
      await context.close();
      if (pid) process.kill(pid, "SIGTERM");
    }
  });
}
