"""An agent of pydantic-ai. pydantic_ai_agent.py PROJECT MODEL_URL"""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

project, url = sys.argv[1:]
args = ["mcp", "--mode", "hybrid", "--root", project, "--log-level", "error"]


async def main():
    tools = MCPToolset({"mcpServers": {"llmc": {"command": "llmc", "args": args}}})
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=url, api_key="x"))
    async with Agent(model, toolsets=[tools]) as agent:
        print((await agent.run("find needle")).output)


asyncio.run(main())
