// The official TypeScript SDK: connect, list, call, progress, cancel, image. typescript_sdk.mjs PROJECT MARK

import { readFileSync, readdirSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [project, mark] = process.argv.slice(2);
const args = ["mcp", "--mode", "classic", "--root", project, "--log-level", "error"];
const client = new Client({ name: "clients-test", version: "1.0.0" });

// Whether the command that holds the mark still runs, seen from outside of its namespace.
const sleeping = () => readdirSync("/proc").filter((name) => /^\d+$/.test(name)).some((pid) => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8") === `sleep\0${mark}\0`;
  } catch {
    return false;
  }
});
const until = async (is) => {
  for (let turn = 0; sleeping() !== is; turn++) {
    if (turn > 600) throw new Error(`waited in vain until the command ${is ? "runs" : "is gone"}`);
    await pause(50);
  }
};
const call = (name, values, options) => client.callTool({ name, arguments: values }, undefined, options);
const said = (result) => result.content.filter(({ type }) => type === "text").map(({ text }) => text).join("\n");

await client.connect(new StdioClientTransport({ command: "llmc", args, env: process.env }));
try {
  console.log("connect", client.getServerVersion().name);
  console.log("list", (await client.listTools()).tools.some(({ name }) => name === "te_grep"));
  console.log("call", said(await call("te_grep", { pattern: "needle" })).split("\n")[0]);

  let notes = 0;
  await call("run_cmd", { command: "sleep 3" }, { onprogress: () => { notes += 1; } });
  console.log("progress", notes > 0);

  const stop = new AbortController();
  const cancelled = call("run_cmd", { command: `sleep ${mark}` }, { signal: stop.signal }).then(() => "answered", () => "cancelled");
  await until(true);
  stop.abort("no longer wanted");
  console.log(await cancelled);
  await until(false);
  console.log("cancel", said(await call("run_cmd", { command: "echo still here" })).trim());

  console.log("image", ...(await call("read_file", { path: "dot.png" })).content.map(({ type }) => type));
} finally {
  await client.close();
}
