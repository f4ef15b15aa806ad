"""An agent of the OpenAI Agents SDK. openai_agents_agent.py PROJECT MODEL_URL"""

import asyncio
import sys

from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI

project, url = sys.argv[1:]
args = ["mcp", "--mode", "hybrid", "--root", project, "--log-level", "error"]


async def main():
    set_tracing_disabled(True)
    model = OpenAIResponsesModel("scripted", AsyncOpenAI(base_url=url, api_key="x"))
    async with MCPServerStdio({"command": "llmc", "args": args}, client_session_timeout_seconds=60) as server:
        agent = Agent("finder", model=model, mcp_servers=[server])
        print((await Runner.run(agent, "find needle")).final_output)


asyncio.run(main())
