-- old
++ x
select 1;
