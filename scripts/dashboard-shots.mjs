// Pictures of the dashboard for docs/, after a few minutes of real calls on this repository. See scripts/dashboard-test.

import { cpSync, mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { onStage, signIn, StdioServer, until } from "./lib/stage.mjs";

const MINUTES = Number(process.env.MINUTES ?? 6);
const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": { name: "shots", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};
const AGENTS = [["planner", "s-4f1c", "opus"], ["builder", "s-9a02", "sonnet"], ["reviewer", "s-77e1", "local"]];
const WORK = [
  ["te_grep", { pattern: "fn " }], ["te_cat", { path: "crates/llmc-server/src/http/gates.rs" }], ["read_file", { path: "README.md", max_lines: 40 }],
  ["list_dir", { path: "crates" }], ["te_find", { pattern: "*.rs" }], ["te_grep", { pattern: "Error::new" }], ["read_file", { path: "Cargo.toml" }],
  ["run_cmd", { argv: ["grep", "-rn", "pub fn", "crates"] }], ["stat", { path: "Cargo.lock" }], ["read_file", { path: "crates/missing.rs" }],
  ["te_cat", { path: "Cargo.lock" }], ["linux_search_content", { root: ".", pattern: "unsafe" }], ["linux_fs_read", { path: "crates/llmc/src/cli.rs", max_lines: 20 }],
];

const [folder] = process.argv.slice(2).map((path) => resolve(path));
mkdirSync(folder, { recursive: true });
process.chdir(join(import.meta.dirname, ".."));

await onStage(async ({ root, server, browser }) => {
  for (const part of ["crates", "README.md", "Cargo.toml", "Cargo.lock"]) cpSync(part, join(root, part), { recursive: true });
  await server.start("--mode", "classic");
  const page = await browser.newPage();
  await page.goto(`${server.url}/`);
  await signIn(page, server.token);
  await until(page, "the stream", () => document.querySelector("#state").dataset.state === "on");

  let id = 0;
  async function call(name, args, [agent, session, model]) {
    const _meta = { ...META, "llmc/agentId": agent, "llmc/sessionId": session, "llmc/model": model };
    const headers = {
      "X-LLMC-Token": server.token, "Content-Type": "application/json", Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name,
    };
    const message = { jsonrpc: "2.0", id: (id += 1), method: "tools/call", params: { name, arguments: args, _meta } };
    const response = await fetch(`${server.url}/mcp`, { method: "POST", body: JSON.stringify(message), headers });
    return /res_[0-9A-Z]{26}/.exec(await response.text())?.[0];
  }
  const writer = new StdioServer(root, "claude-code");
  await writer.start();
  const end = Date.now() + MINUTES * 60_000;
  for (let turn = 0; Date.now() < end; turn += 1) {
    const agent = AGENTS[(turn * 7) % 5 % 3];
    const [name, args] = WORK[(turn * 5 + (turn >> 3)) % WORK.length];
    const handle = await call(name, args, agent);
    if (handle && turn % 4 === 1) await call("te_handle", { handle }, agent);
    // Agents think between calls, now shorter, now longer.
    await new Promise((done) => setTimeout(done, 300 + 2500 * Math.abs(Math.sin(turn * 1.7)) ** 3));
  }

  await writer.call("linux_fs_edit", { path: "README.md", old_text: "# LLMC\n", new_text: "# LLMC, tried out\n" });
  await writer.call("linux_fs_write", { path: "notes/plan.md", content: "# Plan\n\n1. Read the gates.\n2. Write a test.\n" });
  await writer.call("te_grep", { pattern: "Error::new" });
  const busy = writer.call("run_cmd", { command: "echo Compiling; sleep 300", timeout: 300 });
  const open = (view) => page.evaluate((hash) => { location.hash = hash; }, view);
  const shots = [["light", 1340, 880, "light"], ["dark", 1340, 880, "dark"], ["phone", 390, 844, "dark"]];
  for (const [name, width, height, scheme] of shots) {
    await page.setViewport({ width, height, deviceScaleFactor: name === "phone" ? 2 : 1 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: "reduce" }]);
    await until(page, "a drawn chart", (width) => {
      const drawn = document.querySelector(".lanes").viewBox.baseVal.width;
      return drawn > width / 2 && drawn < width;
    }, width);
    await page.screenshot({ path: join(folder, `${name}.png`), optimizeForSpeed: false });
  }
  await page.setViewport({ width: 1340, height: 880 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }, { name: "prefers-reduced-motion", value: "reduce" }]);
  const [{ id: shown }] = (await server.get("/api/calls?tool=te_grep&client=claude-code")).calls;
  const [{ id: entry }] = (await server.get("/api/history?path=README.md")).entries;
  const views = [
    ["agents", "#agents", () => document.querySelector("#agents [data-state=working]")],
    ["calls", `#calls/${shown}`, () => document.querySelector("#call-answer").textContent],
    ["changes", `#changes/${entry}`, () => document.querySelector("#entry-files .diff")],
  ];
  for (const [name, hash, drawn] of views) {
    await open(hash);
    await until(page, name, drawn);
    await page.screenshot({ path: join(folder, `${name}.png`), optimizeForSpeed: false });
  }
  writer.process.kill("SIGTERM");
  await Promise.race([busy, new Promise((done) => setTimeout(done, 3_000))]);
});
