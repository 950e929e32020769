"""An agent of a small shop, for the page: its tools, its policy, and a model that follows a script.

`demo_page.py` serves it with work that runs and an approval that waits; `scripts/page_pictures.py` takes pictures of
it. Serve it by hand with `toolwright serve --app examples/page_agent.py:app --db shop.db`.
"""

import asyncio
import itertools
import re

from toolwright import App, Policy, Rule, ToolCall, ToolContext, ToolError, tool
from toolwright.testing import FunctionModel
from toolwright.tools.model import ModelRequest, ToolResults, UserMessage

SECONDS = 1.0
"""How long the tools take, in units of their own."""
STOCK = {"tea": 12, "milk": 0, "bread": 3, "honey": 40}
_numbers = itertools.count(1)


@tool(readonly=True)
async def look_up_order(order: str) -> dict[str, object]:
    """Find an order by its number.

    Args:
        order: such as "A-1007".
    """
    await asyncio.sleep(0.15 * SECONDS)
    if not re.fullmatch(r"A-\d{4}", order):
        raise ToolError(f"{order!r} is no number of an order; they look like A-1007", category="not_found")
    return {"order": order, "customer": "ann", "items": ["tea", "honey"], "paid": 86.4, "currency": "EUR"}


@tool(readonly=True)
async def check_stock(item: str) -> dict[str, object]:
    """Count what is on the shelf.

    Args:
        item: tea, milk, bread or honey.
    """
    await asyncio.sleep(0.3 * SECONDS)
    return {"item": item, "left": STOCK.get(item, 0)}


@tool(key="{account}")
async def book(ctx: ToolContext, account: str, amount: float) -> dict[str, object]:
    """Book an amount to an account. Bookings to one account run one after the other.

    Args:
        account: whose account.
        amount: in euros; negative to take it back.
    """
    await asyncio.sleep(0.45 * SECONDS)
    number = await ctx.step("write", lambda: f"booking-{next(_numbers)}")
    return {"booking": number, "account": account, "amount": amount}


@tool
async def refund(order: str, amount: float, reason: str = "", notify: bool = True) -> dict[str, object]:
    """Pay money back to a customer.

    Args:
        order: the order that it is for.
        amount: in euros.
        reason: a sentence that the customer reads.
        notify: whether the customer gets a message.
    """
    await asyncio.sleep(0.4 * SECONDS)
    return {"order": order, "refunded": amount, "notified": notify}


@tool(timeout=0.6, readonly=True)
async def ask_carrier(parcel: str) -> str:
    """Ask the carrier where a parcel is; it does not always answer in time.

    Args:
        parcel: its number.
    """
    await asyncio.sleep(5)
    return f"{parcel} is on its way"


@tool
async def ask_clerk(ctx: ToolContext, about: str) -> object:
    """Ask a person in the shop.

    Args:
        about: what the question is about.
    """
    schema = {
        "type": "object",
        "properties": {
            "shelf": {"enum": ["A", "B", "C"], "description": "Where it stands"},
            "count": {"type": "integer", "minimum": 0},
        },
        "required": ["shelf"],
    }
    return await ctx.ask("shelf", f"On which shelf is {about}, and how many are left?", schema)


@tool(supports_background=True)
async def take_inventory(ctx: ToolContext, shelves: int = 40) -> dict[str, int]:
    """Count all shelves, one after the other. It is a long run: each shelf is a step.

    Args:
        shelves: how many there are.
    """
    for shelf in range(1, shelves + 1):
        ctx.status(f"shelf {shelf} of {shelves}")
        await asyncio.sleep(0.4 * SECONDS)
        ctx.output("stdout", f"shelf {shelf:>3}: {shelf * 7 % 23} pieces\n")
        ctx.progress(shelf, total=shelves, unit="shelves")
    return {"shelves": shelves, "pieces": sum(shelf * 7 % 23 for shelf in range(1, shelves + 1))}


def answer(request: ModelRequest) -> str | list[ToolCall]:
    """What the model says: it looks an order up, checks the shelves, books, and refunds; a person approves that."""
    steps = sum(isinstance(item, ToolResults) for item in _last_turn(request))
    asked = next((item.text for item in reversed(request.messages) if isinstance(item, UserMessage)), "")
    found = re.search(r"A-\d{4}", asked)
    order = found.group() if found else "A-1007"
    if "stock" in asked.lower():
        calls = [ToolCall(id=f"stock-{item}", name="check_stock", arguments={"item": item}) for item in STOCK]
        return calls if steps == 0 else "Milk is gone, three loaves of bread are left, and there is plenty of the rest."
    if steps == 0:
        return [
            ToolCall(id="order", name="look_up_order", arguments={"order": order}),
            ToolCall(id="tea", name="check_stock", arguments={"item": "tea"}),
            ToolCall(id="carrier", name="ask_carrier", arguments={"parcel": "P-31"}),
        ]
    if steps == 1:
        arguments = {"order": order, "amount": 86.4, "reason": "The honey broke on its way.", "notify": True}
        return [ToolCall(id="refund", name="refund", arguments=arguments)]
    return f"Order {order} is paid back, 86.40 € in all. The carrier did not answer; I will ask again tomorrow."


def _last_turn(request: ModelRequest) -> list[object]:
    items: list[object] = list(request.messages)
    last = max((place for place, item in enumerate(items) if isinstance(item, UserMessage)), default=0)
    return items[last:]


app = App(
    tools=[look_up_order, check_stock, book, refund, ask_carrier, ask_clerk, take_inventory],
    policy=Policy(
        rules=[Rule("ask", "refund", name="refunds need a person", reason="Money leaves the shop.")],
        max_concurrency=6,
    ),
    model=FunctionModel(answer, name="shop"),
    instructions="You help in a small shop.",
)

BATCH = [
    ToolCall(id="order", name="look_up_order", arguments={"order": "A-1007"}),
    ToolCall(id="ann-1", name="book", arguments={"account": "ann", "amount": 40}),
    ToolCall(id="ann-2", name="book", arguments={"account": "ann", "amount": -15}),
    ToolCall(id="ann-3", name="book", arguments={"account": "ann", "amount": 7}),
    ToolCall(id="bob-1", name="book", arguments={"account": "bob", "amount": 12}),
    ToolCall(id="bob-2", name="book", arguments={"account": "bob", "amount": 3}),
    *(ToolCall(id=f"stock-{item}", name="check_stock", arguments={"item": item}) for item in STOCK),
    ToolCall(id="parcel", name="ask_carrier", arguments={"parcel": "P-30"}),
    ToolCall(id="wrong", name="look_up_order", arguments={"order": "1007"}),
    ToolCall(id="typo", name="chek_stock", arguments={"item": "tea"}),
]
"""One answer of a model with many calls: some run side by side, some wait for each other, some fail."""
