// Ask LLMC from TypeScript, with the official SDK (npm install @modelcontextprotocol/sdk).
//
//     node examples/typescript/search.ts PATTERN [FOLDER]      (Node 22.18 or later runs TypeScript as it is)
//
// Starts `llmc mcp` for the folder, lists what it offers in mode `te`, and prints where the pattern is.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [pattern, folder = "."] = process.argv.slice(2);
const llmc = new StdioClientTransport({
  command: "llmc",
  args: ["mcp", "--mode", "te", "--root", folder, "--log-level", "error"],
});
const client = new Client({ name: "search", version: "1.0.0" });
await client.connect(llmc);
try {
  const { tools } = await client.listTools();
  console.log("tools:", tools.map((tool) => tool.name).join(" "));
  const found = await client.callTool({ name: "te_grep", arguments: { pattern } });
  const [answer] = found.content as { type: string; text: string }[];
  if (found.isError) throw new Error(answer.text);
  console.log(answer.text);
} finally {
  await client.close();
}
