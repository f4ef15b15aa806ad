"""An agent of LangChain with langchain-mcp-adapters. langchain_agent.py PROJECT MODEL_URL"""

import asyncio
import sys

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI

project, url = sys.argv[1:]
args = ["mcp", "--mode", "hybrid", "--root", project, "--log-level", "error"]


async def main():
    client = MultiServerMCPClient({"llmc": {"transport": "stdio", "command": "llmc", "args": args}})
    agent = create_agent(ChatOpenAI(model="scripted", base_url=url, api_key="x"), await client.get_tools())
    answer = await agent.ainvoke({"messages": [{"role": "user", "content": "find needle"}]})
    print(answer["messages"][-1].text)


asyncio.run(main())
