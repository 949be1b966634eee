-- A stack of values.
local Stack = {}
Stack.__index = Stack

function Stack.new(limit)
  return setmetatable({ items = {}, limit = limit }, Stack)
end

function Stack:push(item)
  self.items[#self.items + 1] = item
  return self
end

function Stack:pop()
  return table.remove(self.items)
end

local function empty(stack)
  return #stack.items == 0
end

local describe = function(stack)
  return "stack of " .. #stack.items
end

return { Stack = Stack, empty = empty, describe = describe }
